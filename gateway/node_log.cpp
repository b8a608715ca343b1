#include <gateway/node_log.hpp>

#include <gateway/runtime/log.hpp>

namespace fencegate {
namespace {

spdlog::level::level_enum level_of(lockcore::node_state state) {
    using lockcore::node_state;
    return state == node_state::voting || state == node_state::identifying ? spdlog::level::info : spdlog::level::warn;
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
    runtime::log(level_of(change.new_state), "node changed its state",
                 {{"node", change.name},
                  {"old_state", lockcore::to_string(change.old_state)},
                  {"new_state", lockcore::to_string(change.new_state)},
                  {"detail", change.detail}});
}

void node_log::end_window(node_lines& lines) {
    const std::lock_guard hold(mutex_);
    if (lines.left_out > 0) {
        runtime::log(spdlog::level::warn, "node changed its state more often",
                     {{"node", lines.latest.name},
                      {"left_out", lines.left_out},
                      {"within_s", window.count()},
                      {"new_state", lockcore::to_string(lines.latest.new_state)},
                      {"detail", lines.latest.detail}});
    }
    lines.written = lines.left_out = 0;
}

}  // namespace fencegate
