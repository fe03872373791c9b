-- KEYS: record   ARGV: requested (1 or 0)
if redis.call('HEXISTS', KEYS[1], 'state') == 0 then return 0 end
if ARGV[1] == '1' then return redis.call('HSET', KEYS[1], 'cancel', '1') end
return redis.call('HDEL', KEYS[1], 'cancel')
