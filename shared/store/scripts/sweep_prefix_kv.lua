-- KEYS: versions, sizes, handles   ARGV: weights digest
-- Forgets one version's KV. Returns its blobs and their sizes in turns.
local blobs = redis.call('HGETALL', KEYS[2])
redis.call('UNLINK', KEYS[2], KEYS[3])
redis.call('ZREM', KEYS[1], ARGV[1])
return blobs
