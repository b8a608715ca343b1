#include <gateway/audit/generation_steps.hpp>

#include <algorithm>
#include <functional>
#include <utility>

namespace fencegate::audit {

namespace step = generation_step;
using notice = generation_steps::ports::notice;

step::any generation_steps::on_state(const std::optional<state>& found) {
    if (!found) {  // readiness and the log report that PostgreSQL does not answer
        if (floor_known_) compare_with_nodes();
        return step::wait{};
    }
    if (!found->current) {
        if (std::exchange(current_, false)) {
            ports_.report(notice::generation_changed);
            ports_.renew_connections();  // the others may still be connected to the server before
        }
        seen_ = {};
        for (const auto& node : ports_.nodes())
            seen_ = std::max(seen_, node.observed_epoch);
        return step::begin_change{seen_};
    }
    // The answer came over an old connection, to a server that was replaced; the next look uses a new one.
    if (found->floor < floor_) return step::wait{.briefly = true};
    if (found->floor > floor_) {
        ports_.raise_hints(found->floor);
        // Also at the first look: PostgreSQL may have been replaced since this gateway acknowledged its first writes.
        lookups_left_ = lookups_;
        counts_change_ = floor_known_;
        floor_ = found->floor;
    }
    floor_known_ = true;
    current_ = true;
    compare_with_nodes();
    if (lookups_left_ == 0) return step::wait{};
    finish_is_next_ = false;
    return step::find_lost_writes{};
}

void generation_steps::compare_with_nodes() {
    std::vector<lockcore::epoch> floors;
    for (const auto& node : ports_.nodes())
        floors.push_back(node.floor_epoch);
    std::ranges::sort(floors, std::greater{});
    const lockcore::epoch known_by_majority = floors[lockcore::majority_of(floors.size()) - 1];
    const bool was_replaced = std::exchange(replaced_, known_by_majority > floor_);
    if (replaced_ != was_replaced) ports_.report(replaced_ ? notice::replaced : notice::no_longer_replaced);
    ports_.require_floor(std::max(floor_, known_by_majority));
}

step::any generation_steps::on_begun(std::optional<lockcore::storage_floor> begun) {
    if (!begun) return step::wait{.briefly = true};
    floor_to_set_ = std::move(*begun);
    every_node_had_it_ = false;
    return step::announce{floor_to_set_};
}

step::any generation_steps::on_announced(const std::optional<lockcore::floor_announcement>& announced) {
    if (!announced) return step::wait{.briefly = true};
    // Where every node has the floor, but no majority is admitted, it has to be so a second time: a node may have
    // forgotten the floor while the others answered.
    const bool by_all_alone = announced->by_all && !announced->by_majority;
    if (by_all_alone && !std::exchange(every_node_had_it_, true)) return step::announce{floor_to_set_};
    if (const auto close = lockcore::value_of(announced->too_close); close > 0) {
        // PostgreSQL returns the change that is under way, with its floor, unless that is below `seen`.
        seen_ = std::max(seen_, lockcore::epoch{close + lockcore::floor_distance});
        return step::begin_change{seen_};
    }
    if (!announced->by_majority && !by_all_alone) {
        // Another gateway may have announced, and even finished, another change: PostgreSQL knows.
        if (!announced->changed && !std::exchange(waits_for_nodes_, true)) ports_.report(notice::waits_for_nodes);
        return step::wait{.briefly = true};
    }
    waits_for_nodes_ = false;
    finish_is_next_ = true;
    return step::find_lost_writes{};
}

step::any generation_steps::on_lost_writes(bool answered) {
    if (!answered) return step::wait{.briefly = true};
    if (finish_is_next_) return step::finish_change{floor_to_set_.change_id};
    ports_.report_lost(true);
    --lookups_left_;
    const int looked_up = lookups_ - lookups_left_;
    if (looked_up == 2 && counts_change_) ++changes_;
    return step::wait{};
}

step::any generation_steps::on_finished(bool finished) {
    if (!finished) return step::wait{.briefly = true};
    ports_.report(notice::change_finished);
    ports_.report_lost(false);
    return look();  // at once: until then new tokens are below the new floor
}

}  // namespace fencegate::audit
