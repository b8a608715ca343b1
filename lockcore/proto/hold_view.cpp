#include <proto/hold_view.hpp>

#include <algorithm>

namespace lockcore {
namespace {

void add_id(std::vector<hold_id>& ids, const hold_id& id) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
}

void add_ids(std::vector<hold_id>& ids, std::string_view line) {
    while (!line.empty()) {
        const std::string_view word = line.substr(0, line.find(','));
        line.remove_prefix(std::min(word.size() + 1, line.size()));
        if (const auto id = hold_id::parse(word)) add_id(ids, *id);
    }
}

}  // namespace

void hold_view::add(std::string_view text) {
    text = text.substr(0, lease_bytes_max);
    const auto next_line = [&text] {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        return line;
    };
    add_ids(live_, next_line());
    add_ids(tombstones_, next_line());
    if (!is_closed()) close_mark_ = text;
}

void hold_view::add(const hold_view& other) {
    for (const hold_id& id : other.live_)
        add_id(live_, id);
    for (const hold_id& id : other.tombstones_)
        add_id(tombstones_, id);
    if (!is_closed()) close_mark_ = other.close_mark_;
}

std::string hold_view::text() const {
    std::string out;
    for (const hold_id& id : live_) {
        if (is_released(id)) continue;
        if (!out.empty()) out += ',';
        out += id.str();
    }
    out += '\n';
    for (const hold_id& id : tombstones_) {
        if (&id != &tombstones_.front()) out += ',';
        out += id.str();
    }
    out += '\n';
    const auto closing = hold_id::parse(std::string_view(close_mark_).substr(0, 16));
    if (!closing || !is_released(*closing)) out += close_mark_;
    return out;
}

std::size_t hold_view::count() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(live_, [this](const hold_id& id) { return !is_released(id); }));
}

bool hold_view::is_released(const hold_id& id) const {
    return std::ranges::find(tombstones_, id) != tombstones_.end();
}

}  // namespace lockcore
