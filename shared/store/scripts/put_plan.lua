-- KEYS: fence, plans   ARGV: fence, step, plan
-- Returns the run's current fence: nothing is stored under a lower one.
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) >= current then redis.call('HSET', KEYS[2], ARGV[2], ARGV[3]) end
return current
