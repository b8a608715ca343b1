#pragma once

#include <sim/parts/messages.hpp>

#include <array>
#include <string>
#include <vector>

namespace sim {

/// Simulates the durable register of epochs, PostgreSQL's fencing.node and fencing.draw_epoch. It may be unreachable,
/// and its answer may be lost after it has drawn an epoch; it never loses data.
class epoch_register {
  public:
    enum class query_kind : std::uint8_t { find, draw, note_unsynced };
    struct call {
        query_kind kind{};
        std::uint32_t gateway = 0, node = 0, serial = 0;
        std::uint64_t seen = 0;
        std::string life;
        bool synced = false;
        bool done = false;
        std::uint64_t epoch = 0;  ///< The epoch drawn or found.
        bool repeated = false;
        bool known = false;  ///< find: the node has a row; `epoch`, `life` and `synced` are set from it.
    };

    explicit epoch_register(context& ctx) : ctx_(ctx) {}

    void ask(call c) {
        calls_.push_back(std::move(c));
        const auto index = static_cast<std::uint32_t>(calls_.size() - 1);
        ctx_.events.schedule_in(trip(), {.kind = event_kind::draw_arrives, .a = index});
    }
    void arrives(std::uint32_t index) {
        call& c = calls_[index];
        if (open_) {
            c.done = true;
            execute(c);
            if (loses_answers_ && ctx_.rng.chance(150)) {
                c.done = false;
                ctx_.hit(probe::draw_answer_lost);
            }
        }
        if (!c.done) ctx_.hit(probe::draw_failed);
        ctx_.events.schedule_in(trip(), {.kind = event_kind::draw_answered, .a = index});
    }
    const call& answered(std::uint32_t index) const { return calls_[index]; }

    void close() {
        open_ = false;
        loses_answers_ = true;
    }
    void open() { open_ = true; }
    /// Returns whether the register says that a node's data are complete after a restart.
    bool says_synced(std::uint32_t node) const { return rows_[node].synced; }
    void heal() {
        open_ = true;
        loses_answers_ = false;
    }

  private:
    struct row {
        std::string life;
        std::uint64_t epoch = 0;  ///< 0: none was drawn.
        bool synced = false;
    };
    void execute(call& c) {
        row& node = rows_[c.node];
        switch (c.kind) {
            case query_kind::find:
                c.known = node.epoch != 0;
                c.epoch = node.epoch;
                c.synced = node.synced;
                c.life = node.life;
                return;
            case query_kind::note_unsynced:
                node.synced = false;
                return;
            case query_kind::draw:
                c.repeated = node.life == life_of(c);
                if (c.repeated) {
                    node.synced = node.synced && c.synced;
                    ctx_.hit(probe::draw_repeated);
                } else {
                    epoch_ = std::max(epoch_, c.seen) + 1;
                    node = {life_of(c), epoch_, c.synced};
                }
                c.epoch = node.epoch;
                ctx_.note("epoch is drawn", c.gateway, c.node, c.epoch, c.repeated);
                return;
        }
    }
    std::string life_of(const call& c) const {
        return ctx_.is_active(mutation::one_epoch_per_process) ? c.life.substr(0, c.life.find('/')) : c.life;
    }
    microseconds trip() { return ctx_.config.delay_base + ctx_.rng.draw_around(ctx_.config.delay_more * 4); }

    context& ctx_;
    bool open_ = true, loses_answers_ = false;
    std::uint64_t epoch_ = 0;
    std::array<row, sim_nodes_max> rows_{};
    std::vector<call> calls_;
};

}  // namespace sim
