#pragma once

#include <boost/json/object.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// Parses a text in JSON.
///
/// Out: an empty object if it is no object.
boost::json::object parse_object(std::string_view text);

/// Returns a member that is a string; empty if it is not.
std::string get_text(const boost::json::object& object, std::string_view name);

/// Returns a member that is an integer; empty if it is not.
std::optional<std::int64_t> get_integer(const boost::json::object& object, std::string_view name);

/// Returns a member that is an integer, as milliseconds; empty if it is not.
///
/// Limits: a hundred years in either direction, which can be added to any time: a gateway that is not what it should be
///         may send any number.
std::optional<std::chrono::milliseconds> get_duration(const boost::json::object& object, std::string_view name);

/// Returns a member for display: a string as it is, `-` for null, empty or missing, else its JSON.
std::string display_text(const boost::json::object& object, std::string_view name);

/// One event of a text/event-stream.
struct stream_event {
    std::string name;
    std::string data;
    std::string id{};  ///< With which a stream resumes after it; empty: none.
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
