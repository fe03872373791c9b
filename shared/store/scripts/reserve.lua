-- KEYS: sizes   ARGV: name, num_bytes, budget_bytes
-- Returns 0, or the bytes that the run would keep with this blob if they are over its budget.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
local used = tonumber(ARGV[2])
for _, size in ipairs(redis.call('HVALS', KEYS[1])) do used = used + tonumber(size) end
if used > tonumber(ARGV[3]) then return used end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 0
