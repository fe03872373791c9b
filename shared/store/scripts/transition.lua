-- KEYS: record, fence   ARGV: to, fence (-1: any), request, num_allowed, allowed..., info field, value, ...
local current = tonumber(redis.call('GET', KEYS[2]) or '0')
local fence = tonumber(ARGV[2])
if fence >= 0 and fence < current then return 0 end
local record = redis.call('HMGET', KEYS[1], 'state', 'request')
-- The same request once more: its reply was lost on the way.
if record[2] == ARGV[3] then return 1 end
local last = 4 + tonumber(ARGV[4])
for at = 5, last do
  if record[1] == ARGV[at] then
    local time = redis.call('TIME')
    local updated = time[1] .. '.' .. string.format('%06d', time[2])
    redis.call('HSET', KEYS[1], 'state', ARGV[1], 'updated', updated, 'request', ARGV[3])
    for field = last + 1, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[field], ARGV[field + 1]) end
    return 1
  end
end
return 0
