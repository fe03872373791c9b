-- KEYS: fence, hash   ARGV: fence, field, value, field, value, ...
-- Returns the run's current fence: nothing is stored under a lower one.
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < current then return current end
for at = 2, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
return current
