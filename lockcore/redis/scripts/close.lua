-- CLOSE (docs/protocol.md, HOLDS): sets a CLOSE mark, so that the lease refuses HOLD, if the caller's hold is the only
-- one; or removes that mark.
-- The marks of other calls stay: their tokens may be sealed. Of more than eight the oldest are replaced by one that no
-- call removes.
-- KEYS  fg:node, then for each lease: its lease keys
-- ARGV  run id, then for each lease: number of resources, nonce, id of the caller's hold, mark of this call, '1' = set
--       the mark, '0' = remove it
-- Reply one string for each lease: '0 ids\ntombstones\nclosed' done | '7 ids\ntombstones\nclosed' other holds are left:
--       no effect
--       | '2' not all of its keys are the caller's: no mark is set; it is removed from those that are
--       error UNINIT if the node is not admitted under this run id.
-- Why atomic: no hold may be added between the test and the mark.
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end

local function close(k, n, nonce, id, call, sets)
  local MARKS_MAX = 8
  local mark, leases, is_owned = id .. call, read_group(k, n, nonce)
  local has_others, marks = false, merge_group(leases, k, n).close_marks
  for _, l in pairs(leases) do
    has_others = has_others or remove_id(l.ids, id) ~= ''
  end
  if sets == '0' then
    for i, l in pairs(leases) do
      l.close_marks, l.ids = remove_mark(l.close_marks, mark), confirm_id(l.ids, id)
      write_lease(KEYS[i], l)
    end
    return is_owned and '0 ' .. format_holds(leases[k]) or '2'
  end
  if not is_owned then return '2' end
  if has_others then return '7 ' .. format_holds(leases[k]) end
  marks = merge_marks(marks, mark)
  while #marks > MARKS_MAX * #mark do marks = merge_marks(string.sub(marks, #mark + 1), id .. id) end
  for i, l in pairs(leases) do
    l.close_marks, l.ids = marks, confirm_id(l.ids, id)
    write_lease(KEYS[i], l)
  end
  return '0 ' .. format_holds(leases[k])
end

return (for_each_lease(1, 5, close))
