-- KEYS: leases, holders   ARGV: owner, ttl_ms
local time = redis.call('TIME')
local expires = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[2])
local held = redis.call('HGETALL', KEYS[2])
local count = 0
for at = 1, #held, 2 do
  if held[at + 1] == ARGV[1] then
    redis.call('ZADD', KEYS[1], expires, held[at])
    count = count + 1
  end
end
return count
