#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// One event of a stream of events.
struct stream_event {
    std::string name;
    std::string data;
};

/// Takes text/event-stream apart (WHATWG HTML, 9.2): `event` and `data`; comments and other fields are skipped.
/// Pieces may be cut anywhere.
class event_reader {
  public:
    /// Bytes that may wait for their end; more is no stream of a gateway.
    static constexpr std::size_t pending_max = 1 << 20;

    /// Throws std::length_error above pending_max.
    void add(std::string_view piece);

    /// The next whole event; empty until more was added.
    std::optional<stream_event> next();

  private:
    std::string pending_;
    stream_event current_;
    bool has_data_ = false;
};

}  // namespace fencegate::cli
