-- After holds.lua: joins what the keys of a lease of several resources have.
-- The number by which UPGRADE recognizes a lease that does not count: it changes with each loss of the lease and with
-- each admission of the node.
local function version_of(stamp, base) return string.format('%.0f', math.max(tonumber(stamp), base)) end
local function remove_mark(marks, mark)
  for at = 1, #marks, MARK_BYTES do
    if string.sub(marks, at, at + MARK_BYTES - 1) == mark then
      return string.sub(marks, 1, at - 1) .. string.sub(marks, at + MARK_BYTES)
    end
  end
  return marks
end
-- Each mark once; those of `more` are the newest.
local function merge_marks(marks, more)
  for at = 1, #more, MARK_BYTES do
    local mark = string.sub(more, at, at + MARK_BYTES - 1)
    marks = remove_mark(marks, mark) .. mark
  end
  return marks
end
-- Returns what the leases of a group have together: holds, tombstones and CLOSE marks; their stamp, '' if they differ
-- and nil if there is none; and whether all have this token.
local function merge_group(leases, k, n, token)
  local all = {ids = '', tombstones = '', close_marks = '', has_token = true, stamp = nil}
  for i = k, k + n - 1 do
    local l = leases[i]
    if l then
      all.ids, all.tombstones = merge_ids(all.ids, l.ids), merge_ids(all.tombstones, l.tombstones)
      all.close_marks = merge_marks(all.close_marks, l.close_marks)
      if all.stamp and all.stamp ~= l.stamp then all.stamp = '' elseif all.stamp == nil then all.stamp = l.stamp end
      all.has_token = all.has_token and l.token == token
    end
  end
  return all
end
