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

/// Takes text/event-stream apart (WHATWG HTML, 9.2): `event`, `data` and `id`; comments and other fields are skipped.
/// Pieces may be cut anywhere.
class event_reader {
  public:
    /// Bytes that may wait for their end; more is no stream of a gateway.
    static constexpr std::size_t pending_max = 1 << 20;

    /// Throws std::length_error above pending_max.
    void add(std::string_view piece);

    /// The next whole event; empty until more was added.
    std::optional<stream_event> next();

    /// The last id that was told, also by one that had nothing else; where the stream is to be resumed. Empty: none
    /// yet.
    const std::string& last_id() const { return last_id_; }

  private:
    std::string pending_;
    stream_event current_;
    std::string id_, last_id_;
    bool has_data_ = false;
};

}  // namespace fencegate::cli
