-- KEYS: leases, holders, deliveries, offered   ARGV: owner, item, again (1: offer it again)
if redis.call('HGET', KEYS[2], ARGV[2]) ~= ARGV[1] then return 0 end
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
if ARGV[3] == '1' then
  redis.call('HINCRBY', KEYS[3], ARGV[2], -1)
  redis.call('RPUSH', KEYS[4], ARGV[2])
end
return 1
