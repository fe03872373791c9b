-- KEYS: index   Deletes every key that the index names (all of one run, so of one slot) and the index.
for _, key in ipairs(redis.call('SMEMBERS', KEYS[1])) do redis.call('UNLINK', key) end
return redis.call('UNLINK', KEYS[1])
