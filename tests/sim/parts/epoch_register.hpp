#pragma once

#include <proto/core_io.hpp>
#include <sim/parts/messages.hpp>

#include <map>
#include <string>
#include <vector>

namespace sim {

/// Simulates the durable register of epochs, PostgreSQL's fencing.node and fencing.draw_epoch. It may be unreachable,
/// and its answer may be lost after it has drawn an epoch; it never loses data.
class epoch_register {
  public:
    struct call {
        std::uint32_t gateway = 0, incarnation = 0;
        lockcore::request_number number{};
        lockcore::register_request::any asked;
        lockcore::register_response response;
    };

    explicit epoch_register(context& ctx) : ctx_(ctx) {}

    void ask(call c) {
        calls_.push_back(std::move(c));
        const auto index = static_cast<std::uint32_t>(calls_.size() - 1);
        ctx_.events.schedule_in(trip(), {.kind = event_kind::draw_arrives, .a = index});
    }
    void arrives(std::uint32_t index) {
        call& c = calls_[index];
        lockcore::failure failed{lockcore::errc::no_quorum, "out of reach", {}, {}, {}};
        if (open_) {
            c.response = std::visit([this](const auto& asked) { return execute(asked); }, c.asked);
            if (loses_answers_ && ctx_.rng.chance(150)) {
                c.response = failed;
                ctx_.hit(probe::draw_answer_lost);
            }
        } else {
            c.response = failed;
            ctx_.hit(probe::draw_failed);
        }
        ctx_.events.schedule_in(trip(), {.kind = event_kind::draw_answered, .a = index});
    }
    const call& answered(std::uint32_t index) const { return calls_[index]; }

    void close() {
        open_ = false;
        loses_answers_ = true;
    }
    void open() { open_ = true; }
    void heal() {
        open_ = true;
        loses_answers_ = false;
    }
    /// Returns whether the register says that a node's data are complete after a restart.
    bool says_synced(const std::string& node) const {
        const auto found = rows_.find(node);
        return found != rows_.end() && found->second.synced;
    }

  private:
    lockcore::register_response execute(const lockcore::register_request::find& asked) {
        const auto found = rows_.find(asked.node_name);
        if (found == rows_.end()) {
            ctx_.hit(probe::first_admission);
            return lockcore::node_record();
        }
        return found->second;
    }
    lockcore::register_response execute(const lockcore::register_request::note_unsynced& asked) {
        if (const auto found = rows_.find(asked.node_name); found != rows_.end()) found->second.synced = false;
        return std::monostate();
    }
    lockcore::register_response execute(const lockcore::register_request::draw& asked) {
        const lockcore::epoch_request& r = asked.request;
        std::string life = r.life;
        if (ctx_.is_active(mutation::one_epoch_per_process)) life = life.substr(0, life.find('/'));
        const auto found = rows_.find(r.node_name);
        lockcore::drawn_epoch drawn;
        drawn.repeated = !life.empty() && found != rows_.end() && found->second.life == life;
        if (drawn.repeated) {
            drawn.value = found->second.latest_epoch;
            found->second.synced = found->second.synced && r.synced;
            ctx_.hit(probe::draw_repeated);
        } else {
            epoch_ = std::max(epoch_, value_of(r.highest_observed)) + 1;
            drawn.value = lockcore::epoch{epoch_};
            if (!life.empty()) rows_[r.node_name] = {true, drawn.value, life, r.synced};
        }
        ctx_.note("epoch is drawn", epoch_, drawn.repeated, value_of(r.highest_observed));
        return drawn;
    }
    microseconds trip() { return ctx_.config.delay_base + ctx_.rng.draw_around(ctx_.config.delay_more * 4); }

    context& ctx_;
    bool open_ = true, loses_answers_ = false;
    std::uint64_t epoch_ = 0;
    std::map<std::string, lockcore::node_record> rows_;
    std::vector<call> calls_;
};

}  // namespace sim
