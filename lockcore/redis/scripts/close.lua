-- CLOSE (docs/protocol.md, HOLDS): sets a CLOSE mark, so that the lease refuses HOLD, if the caller's hold is the only one; or removes that mark.
-- The marks of other calls stay: their tokens may be sealed. Of more than eight the oldest are replaced by one that no call removes.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, id of the caller's hold, mark of this call, '1' = set the mark, '0' = remove it
-- Reply one string for each lease: '0 ids\ntombstones\nclosed' done | '7 ids\ntombstones\nclosed' other holds are left: no effect
--       | '2' not all of its keys are the caller's: no mark is set; it is removed from those that are
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: no hold may be added between the test and the mark.
local MARKS_MAX = 8
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local out, k, a = {}, 2, 2
while a <= #ARGV do
  local n, nonce, id, mark, close = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 2] .. ARGV[a + 3], ARGV[a + 4] == '1'
  local is_owned, leases, others, marks = true, {}, false, ''
  for i = k, k + n - 1 do
    local l = read_lease(KEYS[i])
    if not l or l.nonce ~= nonce then
      is_owned = false
    else
      leases[i], others, marks = l, others or remove_id(l.ids, id) ~= '', merge_marks(marks, l.close_marks)
    end
  end
  if not close then
    for i, l in pairs(leases) do
      l.close_marks, l.ids = remove_mark(l.close_marks, mark), confirm_id(l.ids, id)
      write_lease(KEYS[i], l)
    end
  elseif is_owned and not others then
    marks = merge_marks(marks, mark)
    while #marks > MARKS_MAX * #mark do marks = merge_marks(string.sub(marks, #mark + 1), id .. id) end
    for i = k, k + n - 1 do
      local l = leases[i]
      l.close_marks, l.ids = marks, confirm_id(l.ids, id)
      write_lease(KEYS[i], l)
    end
  end
  out[#out + 1] = not is_owned and '2' or (close and others and '7 ' or '0 ') .. format_holds(leases[k])
  k, a = k + n, a + 5
end
return out
