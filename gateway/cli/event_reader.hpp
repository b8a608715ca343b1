#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// One event of a text/event-stream.
struct stream_event {
    std::string name;
    std::string data;
};

/// Parses a text/event-stream (WHATWG HTML, 9.2) that arrives in pieces of any size. Reads the fields `event`, `data`
/// and `id`; skips comments, other fields, and an `id` with a control character, which no header can have.
class event_reader {
  public:
    /// The most bytes of one event.
    static constexpr std::size_t pending_max = 1 << 20;

    /// Adds the next piece of the stream. Throws std::length_error above pending_max.
    void add(std::string_view piece);

    /// Returns the next complete event; empty when add() has to be called first.
    std::optional<stream_event> next();

    /// Returns the last event id received, from which the stream can be resumed; empty when there is none yet. An event
    /// without data counts too.
    const std::string& last_id() const { return last_id_; }

  private:
    std::string pending_;
    stream_event current_;
    std::string id_, last_id_;
    bool has_data_ = false;
};

}  // namespace fencegate::cli
