-- KEYS: sizes, handles
-- ARGV: ttl_ms, number of blobs that were not kept, their ids..., then of each handle its field, its body, its blob
-- Gives back what was reserved for blobs that were not kept, and lets the handles of the others be found. A blob that
-- nobody accounts for any more was purged while it was written. Returns the ids of such blobs.
local sizes, handles = KEYS[1], KEYS[2]
local last_unused = 2 + tonumber(ARGV[2])
for at = 3, last_unused do redis.call('HDEL', sizes, ARGV[at]) end

local is_kept, purged = {}, {}
for at = last_unused + 1, #ARGV, 3 do
  local blob = ARGV[at + 2]
  if is_kept[blob] == nil then
    is_kept[blob] = redis.call('HEXISTS', sizes, blob) == 1
    if not is_kept[blob] then purged[#purged + 1] = blob end
  end
  if is_kept[blob] then redis.call('HSET', handles, ARGV[at], ARGV[at + 1]) end
end
redis.call('PEXPIRE', handles, ARGV[1])
return purged
