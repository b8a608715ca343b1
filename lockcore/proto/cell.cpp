#include <lockcore/cell.hpp>

#include <charconv>

namespace lockcore {

std::string mark_cell(cell_id cell, std::string_view name) {
    std::string marked = cell == 0 ? std::string() : std::to_string(cell) + '~';
    return marked.append(name);
}

std::optional<cell_name> split_cell(std::string_view marked) {
    const std::size_t end = marked.find('~');
    if (end == std::string_view::npos) return cell_name{0, marked};
    cell_name out{0, marked.substr(end + 1)};
    const auto [last, error] = std::from_chars(marked.data(), marked.data() + end, out.cell);
    // Each name has one spelling: no leading zeros, and no mark of cell 0.
    if (error != std::errc{} || last != marked.data() + end || marked.front() == '0') return std::nullopt;
    return out;
}

std::string describe_other_cell(std::string_view subject, cell_id named, cell_id own) {
    const std::string target = "cell " + std::to_string(named);
    return std::string(subject) + " names " + target + "; this gateway is of cell " + std::to_string(own) +
           ". Send the request to a gateway of " + target + ".";
}

}  // namespace lockcore
