-- KEYS: owner, fence, record, fenced   ARGV: owner, ttl_ms
-- Returns {fence, cancel_requested}; fence 0 while another owner is alive, or without such a run.
if redis.call('HEXISTS', KEYS[3], 'state') == 0 then return {0, ''} end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0, ''} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[4], ARGV[1])
return {redis.call('INCR', KEYS[2]), redis.call('HGET', KEYS[3], 'cancel') or ''}
