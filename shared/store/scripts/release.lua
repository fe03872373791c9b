-- KEYS: call   ARGV: owner
-- The digest stays: the key keeps standing for this body. So does a result.
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('HDEL', KEYS[1], 'owner', 'expires', 'fence') end
return 1
