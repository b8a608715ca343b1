#include <gateway/node_log.hpp>

#include <spdlog/spdlog.h>

namespace fencegate {
namespace {

spdlog::level::level_enum level_of(lockcore::node_state state) {
    using lockcore::node_state;
    return state == node_state::voting || state == node_state::identifying ? spdlog::level::info : spdlog::level::warn;
}

std::string reason(const lockcore::node_change& change) {
    return change.detail.empty() ? std::string() : ": " + change.detail;
}

}  // namespace

void node_log::on_node_change(const lockcore::node_change& change) {
    const std::lock_guard hold(mutex_);
    auto& lines = by_name_[change.name];
    if (!lines) lines = std::make_unique<node_lines>(io_);
    lines->latest = change;
    if (lines->written == 0) {
        lines->window_end.expires_after(window);
        lines->window_end.async_wait([this, node = lines.get()](boost::system::error_code e) {
            if (!e) end_window(*node);
        });
    }
    if (lines->written == lines_max) {
        ++lines->left_out;
        return;
    }
    ++lines->written;
    spdlog::log(level_of(change.new_state), "node {}: {} -> {}{}", change.name, lockcore::to_string(change.old_state),
                lockcore::to_string(change.new_state), reason(change));
}

void node_log::end_window(node_lines& lines) {
    const std::lock_guard hold(mutex_);
    if (lines.left_out > 0) {
        spdlog::warn("node {}: {} more changes within {} s, now {}{}", lines.latest.name, lines.left_out,
                     window.count(), lockcore::to_string(lines.latest.new_state), reason(lines.latest));
    }
    lines.written = lines.left_out = 0;
}

}  // namespace fencegate
