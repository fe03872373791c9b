-- KEYS: head, fence, history, lengths, plans, traces, trace sizes (list of "step bytes"), trace bytes
-- ARGV: fence, has_expected, expected, manifest, history line, trace budget, step, plan, trace, row, lengths, row, ...
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[2]) or '0') then return 0 end
local head = redis.call('GET', KEYS[1])
if head and head == ARGV[4] then return 1 end
if ARGV[2] == '1' and head ~= ARGV[3] then return 0 end
if ARGV[2] == '0' and head then return 0 end
redis.call('SET', KEYS[1], ARGV[4])
if ARGV[5] ~= '' then redis.call('RPUSH', KEYS[3], ARGV[5]) end
local step, plan, trace = ARGV[7], ARGV[8], ARGV[9]
for at = 10, #ARGV, 2 do redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1]) end
if plan ~= '' then redis.call('HSET', KEYS[5], step, plan) end
if trace ~= '' then
  redis.call('HSET', KEYS[6], step, trace)
  redis.call('RPUSH', KEYS[7], step .. ' ' .. #trace)
  local kept = redis.call('INCRBY', KEYS[8], #trace)
  -- The newest stays, whatever it takes.
  while kept > tonumber(ARGV[6]) and redis.call('LLEN', KEYS[7]) > 1 do
    local oldest, size = string.match(redis.call('LPOP', KEYS[7]), '(%d+) (%d+)')
    redis.call('HDEL', KEYS[6], oldest)
    kept = redis.call('DECRBY', KEYS[8], size)
  end
end
return 1
