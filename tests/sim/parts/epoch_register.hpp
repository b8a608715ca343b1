#pragma once

#include <proto/core_io.hpp>
#include <sim/parts/sessions.hpp>

#include <string>
#include <vector>

namespace sim {

/// Carries the requests of gateways to the register of epochs and its answers back. It may be unreachable, and its
/// answer may be lost after it has drawn an epoch.
class epoch_register {
  public:
    struct call {
        std::uint32_t gateway = 0, incarnation = 0;
        lockcore::request_number number{};
        lockcore::register_request::any asked;
        lockcore::register_response response;
    };

    epoch_register(context& ctx, database& db, std::vector<gateway_sessions>& sessions)
        : ctx_(ctx), db_(db), sessions_(sessions) {}

    void ask(call c) {
        calls_.push_back(std::move(c));
        const auto index = static_cast<std::uint32_t>(calls_.size() - 1);
        ctx_.events.schedule_in(trip(), {.kind = event_kind::draw_arrives, .a = index});
    }
    void arrives(std::uint32_t index) {
        call& c = calls_[index];
        c.response = lockcore::failure{lockcore::errc::no_quorum, "out of reach", {}, {}, {}};
        if (const auto server = reach(c.gateway)) {
            auto response = std::visit([&](const auto& asked) { return execute(*server, asked); }, c.asked);
            if (!loses_answer()) c.response = std::move(response);
        } else {
            ctx_.hit(probe::draw_failed);
        }
        ctx_.events.schedule_in(trip(), {.kind = event_kind::draw_answered, .a = index});
    }
    const call& answered(std::uint32_t index) const { return calls_[index]; }

    /// Returns the server that a call of the gateway reaches now.
    std::optional<database::server> reach(std::uint32_t gateway) {
        return open_ ? sessions_[gateway].reach() : std::nullopt;
    }
    /// Draws whether an answer is lost on its way back.
    bool loses_answer() {
        if (!loses_answers_ || !ctx_.rng.chance(150)) return false;
        ctx_.hit(probe::draw_answer_lost);
        return true;
    }
    microseconds trip() { return ctx_.config.delay_base + ctx_.rng.draw_around(ctx_.config.delay_more * 4); }

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
    bool says_synced(const std::string& node) const { return db_.find_node(db_.newest(), node).synced; }

  private:
    lockcore::register_response execute(database::server s, const lockcore::register_request::find& asked) {
        const lockcore::node_record found = db_.find_node(s, asked.node_name);
        if (!found.known) ctx_.hit(probe::first_admission);
        return found;
    }
    lockcore::register_response execute(database::server s, const lockcore::register_request::note_unsynced& asked) {
        db_.note_unsynced(s, asked.node_name);
        return std::monostate();
    }
    lockcore::register_response execute(database::server s, const lockcore::register_request::draw& asked) {
        if (const auto drawn = db_.draw_epoch(s, asked.request)) return *drawn;
        ctx_.hit(probe::draw_refused);
        return lockcore::failure{lockcore::errc::no_quorum, "the storage generation changed", {}, {}, {}};
    }

    context& ctx_;
    database& db_;
    std::vector<gateway_sessions>& sessions_;
    bool open_ = true, loses_answers_ = false;
    std::vector<call> calls_;
};

}  // namespace sim
