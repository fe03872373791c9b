-- KEYS: owner, fence, record, fenced   ARGV: owner, ttl_ms
-- Returns {fence, cancel_requested}; fence 0 if the ownership is lost.
-- Expired, yet nobody took over: still this owner's. Whoever took over has left its name with the fence, even if it is
-- gone again.
if redis.call('GET', KEYS[4]) ~= ARGV[1] then return {0, ''} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {tonumber(redis.call('GET', KEYS[2])), redis.call('HGET', KEYS[3], 'cancel') or ''}
