-- After command_marks.lua in front of every script that grants, extends, inspects or closes a lease (docs/protocol.md,
-- FORGETTING IN ONE LIFE): refuses the whole call if the command marks have changed since the admission or the last
-- check of the settings.
-- KEYS and ARGV  those of the script that follows
-- Reply none, the script that follows runs; or error UNINIT
-- The comparison takes several times as long as an ACQUIRE, so it runs once in each 10 ms of the node's clock;
-- `compared` is the last such time.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 100 + math.floor(time[2] / 10000))
local looked_at = redis.call('HMGET', KEYS[1], 'marks', 'compared')
if looked_at[2] ~= now then
  if looked_at[1] ~= command_marks() then
    return redis.error_reply('UNINIT node not admitted, or its settings must be checked again')
  end
  redis.call('HSET', KEYS[1], 'compared', now)
end
