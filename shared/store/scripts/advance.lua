-- KEYS: head, fence, history   ARGV: fence, has_expected, expected, manifest, history line
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[2]) or '0') then return 0 end
local head = redis.call('GET', KEYS[1])
if head and head == ARGV[4] then return 1 end
if ARGV[2] == '1' and head ~= ARGV[3] then return 0 end
if ARGV[2] == '0' and head then return 0 end
redis.call('SET', KEYS[1], ARGV[4])
if ARGV[5] ~= '' then redis.call('RPUSH', KEYS[3], ARGV[5]) end
return 1
