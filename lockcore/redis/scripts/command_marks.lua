-- In front of most scripts (docs/protocol.md, FORGETTING IN ONE LIFE): reads from INFO the calls of the commands that remove or replace data,
-- or change how it is stored. The counts only grow in the life of a process, so a change that was undone is still visible.
-- KEYS and ARGV  those of the script that follows
-- Reply 'lost resets set': calls of commands that remove or replace data; the time that CONFIG RESETSTAT took, + 1, or 0 if it was never called
--       (it sets all counts to 0, and its own afterwards to 1); calls of CONFIG SET
local function command_marks()
  local losing = {'replicaof', 'slaveof', 'failover', 'flushall', 'flushdb', 'swapdb', 'debug', 'restore', 'restore-asking', 'migrate', 'move', 'copy',
    'rename', 'renamenx', 'module|load', 'module|loadex'}
  local stats = redis.call('INFO', 'commandstats')
  local function count(name)
    local _, before = string.find(stats, 'cmdstat_' .. name .. ':calls=', 1, true)
    if not before then return 0, 0 end
    local calls, usec = string.match(stats, '^(%d+),usec=(%d+)', before + 1)
    return tonumber(calls), tonumber(usec)
  end
  local lost = 0
  for _, name in ipairs(losing) do lost = lost + count(name) end
  local resets, usec = count('config|resetstat')
  return string.format('%.0f %.0f %.0f', lost, resets > 0 and usec + 1 or 0, (count('config|set')))
end
