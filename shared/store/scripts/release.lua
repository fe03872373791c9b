-- KEYS: call   ARGV: owner
-- The digest stays: the key keeps standing for this body.
local call = redis.call('HMGET', KEYS[1], 'owner', 'reply')
if call[1] == ARGV[1] and not call[2] then redis.call('HDEL', KEYS[1], 'owner', 'expires', 'fence') end
return 1
