-- KEYS: hash   ARGV: field...
-- Returns 1 or 0 for each field: whether it is there.
local out = {}
for at = 1, #ARGV do out[at] = redis.call('HEXISTS', KEYS[1], ARGV[at]) end
return out
