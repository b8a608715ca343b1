-- Put before every script that gives or prolongs a lease, or says that it lives, behind command_marks.lua: the other half of ADM. Nothing is done for any lease when a command ran
-- since the node was let in, or last looked at, by which it may have forgotten or may keep its data otherwise.
-- KEYS and ARGV  those of the script behind it
-- Reply nothing, so that the script goes on; or error UNINIT
if redis.call('HGET', KEYS[1], 'marks') ~= command_marks() then
  return redis.error_reply('UNINIT node not admitted, or to be looked at again')
end
