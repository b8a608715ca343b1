#include <proto/hold_view.hpp>

#include <algorithm>

namespace lockcore {
namespace {

/// Of the two ids of one hold only one is kept: the confirmed one, if it was added.
void add_id(std::vector<hold_id>& ids, const hold_id& id) {
    const hold_id tentative = id.tentative(), confirmed = id.confirmed();
    const auto same =
        std::ranges::find_if(ids, [&](const hold_id& known) { return known == tentative || known == confirmed; });
    if (same == ids.end()) {
        if (ids.size() < hold_ids_max) ids.push_back(id);
    } else if (id == id.confirmed()) {
        *same = id;
    }
}

void add_ids(std::vector<hold_id>& ids, std::string_view line) {
    for (std::size_t read = 0; !line.empty() && read < hold_ids_max; ++read) {
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
    add_marks(text);
}

void hold_view::add(const hold_view& other) {
    for (const hold_id& id : other.live_)
        add_id(live_, id);
    for (const hold_id& id : other.tombstones_)
        add_id(tombstones_, id);
    add_marks(other.close_marks_);
}

void hold_view::add_marks(std::string_view marks) {
    constexpr std::size_t size = 2 * hold_id::size;
    for (; marks.size() >= size && close_marks_.size() < close_marks_max * size; marks.remove_prefix(size)) {
        const std::string_view mark = marks.substr(0, size);
        if (!nonce::parse(mark)) continue;
        bool known = false;
        for (std::size_t at = 0; at < close_marks_.size() && !known; at += size)
            known = std::string_view(close_marks_).substr(at, size) == mark;
        if (!known) close_marks_ += mark;
    }
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
    out += close_marks_;
    return out;
}

std::size_t hold_view::count() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(live_, [this](const hold_id& id) { return !is_released(id); }));
}

bool hold_view::is_released(const hold_id& id) const {
    return std::ranges::any_of(tombstones_, [&id](const hold_id& x) { return x == id || x == id.confirmed(); });
}

}  // namespace lockcore
