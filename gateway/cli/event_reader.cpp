#include <gateway/cli/event_reader.hpp>

#include <lockcore/encoding.hpp>

#include <stdexcept>
#include <utility>

namespace fencegate::cli {

void event_reader::add(std::string_view piece) {
    if (pending_.size() + current_.data.size() + piece.size() > pending_max)
        throw std::length_error("the event stream contains an event of more than 1 MiB");
    pending_ += piece;
}

std::optional<stream_event> event_reader::next() {
    for (auto end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n')) {
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty()) {
            auto complete = std::exchange(current_, {});
            last_id_ = id_;
            if (std::exchange(has_data_, false)) return complete;
            continue;
        }
        const auto colon = line.find(':');
        const std::string_view field = std::string_view(line).substr(0, colon);
        std::string_view value =
            colon == std::string::npos ? std::string_view() : std::string_view(line).substr(colon + 1);
        if (value.starts_with(' ')) value.remove_prefix(1);
        if (field == "event") current_.name = value;
        if (field == "id" && !lockcore::has_control_character(value)) id_ = value;
        if (field == "data") {
            if (std::exchange(has_data_, true)) current_.data += '\n';
            current_.data += value;
        }
    }
    return std::nullopt;
}

}  // namespace fencegate::cli
