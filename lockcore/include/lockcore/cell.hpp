#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockcore {

/// Identifies one of several clusters, each with its own nodes and register, that share the resources of an
/// installation by their prefixes. 0: an installation of one cluster.
using cell_id = std::uint16_t;

/// Returns the text `name`, marked as that of a cell: "CELL~name". A name of cell 0 has no mark.
std::string mark_cell(cell_id cell, std::string_view name);

/// A name with the cell to which it belongs.
struct cell_name {
    cell_id cell = 0;
    std::string_view name;
};

/// Splits a marked name. Out: empty if it begins with anything before "~" that mark_cell does not write.
std::optional<cell_name> split_cell(std::string_view marked);

/// Returns the sentences that refuse something of another cell; `subject`: what was sent, as "The lease_id".
std::string describe_other_cell(std::string_view subject, cell_id named, cell_id own);

}  // namespace lockcore
