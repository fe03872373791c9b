-- KEYS: call, fence   ARGV: owner, fence, reply
-- Returns {verdict, value}: granted | stored reply | busy ms | stale fence
local current = tonumber(redis.call('GET', KEYS[2]) or '0')
if tonumber(ARGV[2]) < current then return {'stale', current} end
local call = redis.call('HMGET', KEYS[1], 'owner', 'expires', 'reply')
if call[3] then return {'stored', call[3]} end
if call[1] ~= ARGV[1] then
  -- Another owner took the claim after it had expired; or nobody has it, since the batch was swept.
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  return {'busy', math.max(0, tonumber(call[2] or now) - now)}
end
redis.call('HSET', KEYS[1], 'reply', ARGV[3])
return {'granted', 0}
