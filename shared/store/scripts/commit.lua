-- KEYS: call, fence   ARGV: owner, fence, reply
-- Returns {verdict, value}: granted | stored reply | lost | stale fence
local current = tonumber(redis.call('GET', KEYS[2]) or '0')
if tonumber(ARGV[2]) < current then return {'stale', current} end
local call = redis.call('HMGET', KEYS[1], 'owner', 'reply')
if call[2] then return {'stored', call[2]} end
if call[1] ~= ARGV[1] then return {'lost', 0} end
redis.call('HSET', KEYS[1], 'reply', ARGV[3])
return {'granted', 0}
