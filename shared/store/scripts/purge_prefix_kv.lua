-- KEYS: versions   ARGV: key prefix, weights digest to keep...
-- Forgets the KV of all other versions. Returns {{version, ...}, {blob, num_bytes, blob, num_bytes, ...}}.
local keep = {}
for at = 2, #ARGV do keep[ARGV[at]] = true end
local dropped, blobs = {}, {}
for _, version in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if not keep[version] then
    dropped[#dropped + 1] = version
    for _, entry in ipairs(redis.call('HGETALL', ARGV[1] .. version .. ':sizes')) do blobs[#blobs + 1] = entry end
    redis.call('UNLINK', ARGV[1] .. version .. ':sizes', ARGV[1] .. version .. ':handles')
    redis.call('ZREM', KEYS[1], version)
  end
end
return {dropped, blobs}
