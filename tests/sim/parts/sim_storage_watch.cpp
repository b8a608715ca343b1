#include <sim/parts/sim_storage_watch.hpp>

#include <algorithm>
#include <type_traits>

namespace sim {

namespace step = fencegate::audit::generation_step;
using fencegate::audit::generation_steps;

sim_storage_watch::sim_storage_watch(context& ctx, database& db, epoch_register& epochs, gateway_sessions& sessions,
                                     owner gateway)
    : ctx_(ctx), db_(db), epochs_(epochs), sessions_(sessions), gateway_(std::move(gateway)) {}

void sim_storage_watch::schedule(event_kind kind, microseconds span) {
    ctx_.events.schedule_in(
        span,
        {.kind = kind, .actor = static_cast<std::uint8_t>(gateway_.index), .a = gateway_.incarnation, .b = serial_});
}

void sim_storage_watch::perform(step::any next) {
    present_ = std::move(next);
    ++serial_;
    answer_ = nullptr;
    if (const auto* wait = std::get_if<step::wait>(&present_)) {
        answer_ = [this] { return step::any(steps_.look()); };
        const microseconds span = wait->briefly ? ctx_.config.watch_interval / 5 : ctx_.config.watch_interval;
        return schedule(event_kind::storage_answered, gateway_.real(span));
    }
    if (const auto* announce = std::get_if<step::announce>(&present_))
        return gateway_.step(lockcore::input::announce_floor{announcement, announce->floor});
    schedule(event_kind::storage_asked, epochs_.trip());
}

void sim_storage_watch::on_announced(const lockcore::result<lockcore::floor_announcement>& announced) {
    if (announced && announced->by_all && !announced->by_majority) ctx_.hit(probe::announced_to_unadmitted);
    if (announced && value_of(announced->too_close) > 0) ctx_.hit(probe::announcement_behind);
    std::optional<lockcore::floor_announcement> answer;
    if (announced) answer = *announced;
    answer_ = [this, answer] { return steps_.on_announced(answer); };
    schedule(event_kind::storage_answered, microseconds{0});
}

void sim_storage_watch::asked(std::uint32_t serial) {
    if (serial != serial_) return;
    const auto server = epochs_.reach(gateway_.index);
    const auto lost_on_the_way = [&] { return !server || epochs_.loses_answer(); };
    if (std::holds_alternative<step::find_state>(present_)) {
        std::optional<generation_steps::state> found;
        if (server) {
            const database::generation g = db_.state_of(*server);
            found = generation_steps::state{g.current, g.floor};
        }
        if (lost_on_the_way()) found.reset();
        answer_ = [this, found] { return steps_.on_state(found); };
    } else if (const auto* begin = std::get_if<step::begin_change>(&present_)) {
        auto begun = server ? db_.begin_generation_change(*server, begin->seen) : std::nullopt;
        if (lost_on_the_way()) begun.reset();
        answer_ = [this, begun] { return steps_.on_begun(begun); };
    } else if (const auto* finish = std::get_if<step::finish_change>(&present_)) {
        bool finished = server && db_.finish_generation_change(*server, finish->change_id);
        if (lost_on_the_way()) finished = false;
        answer_ = [this, finished] { return steps_.on_finished(finished); };
    } else {  // find_lost_writes
        if (server) {
            for (const std::uint64_t id : db_.find_lost_writes(*server, acknowledged_)) {
                lost_.push_back(id);
                std::erase(acknowledged_, id);
            }
        }
        answer_ = [this, found_out = server.has_value()] { return steps_.on_lost_writes(found_out); };
    }
    schedule(event_kind::storage_answered, epochs_.trip());
}

void sim_storage_watch::answered(std::uint32_t serial) {
    if (serial == serial_ && answer_) perform(std::exchange(answer_, nullptr)());
}

std::vector<lockcore::node_status> sim_storage_watch::nodes() const {
    std::vector<lockcore::node_status> out;
    for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n)
        out.push_back(gateway_.core().status(static_cast<lockcore::node_index>(n)));
    return out;
}

void sim_storage_watch::report_lost(bool) {
    if (!lost_.empty()) ctx_.hit(probe::lost_write_reported);
    lost_.clear();
}

void sim_storage_watch::report(notice what) {
    if (what == notice::replaced) ctx_.hit(probe::replaced_server_found);
    ctx_.note("storage generation", gateway_.index, static_cast<std::uint64_t>(what));
}

bool sim_storage_watch::knows_all_lost_writes() const {
    return lost_.empty() && db_.find_lost_writes(db_.newest(), acknowledged_).empty();
}

}  // namespace sim
