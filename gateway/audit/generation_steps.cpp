#include <gateway/audit/generation_steps.hpp>

#include <algorithm>
#include <functional>
#include <utility>

namespace fencegate::audit {

namespace step = generation_step;
using notice = generation_steps::ports::notice;

step::any generation_steps::on_state(const std::optional<state>& found) {
    if (!found) {  // readiness and the log report that PostgreSQL does not answer
        if (floor_known_) find_replaced();
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
    if (found->floor < floor_)
        return step::wait{.briefly = true};  // a connection to a server that was replaced, which ends now
    if (found->floor > floor_) {
        ports_.raise_hints(found->floor);
        // Also at the first look: PostgreSQL may have been replaced since this gateway acknowledged its first writes.
        lookups_left_ = lookups_;
        counts_change_ = floor_known_;
        floor_ = found->floor;
    }
    floor_known_ = true;
    current_ = true;
    find_replaced();
    if (lookups_left_ == 0) return step::wait{};
    finishing_ = false;
    return step::find_lost_writes{};
}

void generation_steps::find_replaced() {
    std::vector<lockcore::epoch> floors;
    for (const auto& node : ports_.nodes())
        floors.push_back(node.floor_epoch);
    const auto quorum = static_cast<std::ptrdiff_t>(lockcore::majority_of(floors.size()));
    std::ranges::nth_element(floors, floors.begin() + quorum - 1, std::greater{});
    const lockcore::epoch known_by_majority = floors[static_cast<std::size_t>(quorum - 1)];
    const bool found = known_by_majority > floor_;
    if (std::exchange(replaced_, found) != found) ports_.report(found ? notice::replaced : notice::no_longer_replaced);
    ports_.require_floor(std::max(floor_, known_by_majority));
}

step::any generation_steps::on_begun(std::optional<lockcore::storage_floor> begun) {
    if (!begun) return step::wait{.briefly = true};
    floor_to_set_ = std::move(*begun);
    second_round_ = false;
    return step::announce{floor_to_set_};
}

step::any generation_steps::on_announced(const std::optional<lockcore::floor_announcement>& announced) {
    if (!announced) return step::wait{.briefly = true};
    // A node may forget and be readmitted while the others answer: a second announcement shows it.
    if (!second_round_ && announced->by_all && !announced->by_majority) {
        second_round_ = true;
        return step::announce{floor_to_set_};
    }
    if (const auto close = lockcore::value_of(announced->too_close); close > 0) {
        // The floor that was drawn last is returned again unless it is below this.
        seen_ = std::max(seen_, lockcore::epoch{close + lockcore::floor_distance});
        return step::begin_change{seen_};
    }
    if (!announced->by_majority && !(second_round_ && announced->by_all)) {
        // Another gateway may have announced, and even finished, another change: PostgreSQL knows.
        if (!announced->changed && !std::exchange(waits_for_nodes_, true)) ports_.report(notice::waits_for_nodes);
        return step::wait{.briefly = true};
    }
    waits_for_nodes_ = false;
    finishing_ = true;
    return step::find_lost_writes{};
}

step::any generation_steps::on_lost_writes(bool answered) {
    if (!answered) return step::wait{.briefly = true};
    if (finishing_) return step::finish_change{floor_to_set_.change_id};
    ports_.report_lost(true);
    --lookups_left_;
    const bool looked_twice = lookups_left_ == lookups_ - 2;
    if (looked_twice && counts_change_) ++changes_;
    return step::wait{};
}

step::any generation_steps::on_finished(bool finished) {
    if (!finished) return step::wait{.briefly = true};
    ports_.report(notice::change_finished);
    ports_.report_lost(false);
    return look();  // at once: until then new tokens are below the new floor
}

}  // namespace fencegate::audit
