-- KEYS: record, fence   ARGV: to, fence (-1: any), num_allowed, allowed..., info field, value, ...
local current = tonumber(redis.call('GET', KEYS[2]) or '0')
local fence = tonumber(ARGV[2])
if fence >= 0 and fence < current then return 0 end
local state = redis.call('HGET', KEYS[1], 'state')
local last = 3 + tonumber(ARGV[3])
for at = 4, last do
  if state == ARGV[at] then
    local time = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'state', ARGV[1], 'updated', time[1] .. '.' .. string.format('%06d', time[2]))
    for field = last + 1, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[field], ARGV[field + 1]) end
    return 1
  end
end
return 0
