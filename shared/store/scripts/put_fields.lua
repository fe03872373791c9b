-- KEYS: fence, hash, index   ARGV: fence, first_wins (1 or 0), field, value, field, value, ...
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < current then return {'stale', current} end
local command = ARGV[2] == '1' and 'HSETNX' or 'HSET'
local count = 0
for at = 3, #ARGV, 2 do count = count + redis.call(command, KEYS[2], ARGV[at], ARGV[at + 1]) end
redis.call('SADD', KEYS[3], KEYS[2])
return {'ok', count}
