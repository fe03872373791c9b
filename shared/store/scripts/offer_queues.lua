-- KEYS: offered, queues...   Moves all items of the queues to the end of what is offered; returns how many there were.
local count = 0
for key = 2, #KEYS do
  while redis.call('LMOVE', KEYS[key], KEYS[1], 'LEFT', 'RIGHT') do count = count + 1 end
end
return count
