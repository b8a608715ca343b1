#pragma once

#include <gateway/domain/history_item.hpp>

#include <string>
#include <string_view>

namespace fencegate::api {

/// What the history says of one token of a resource: who held it, from when to when, how often it was renewed, why it
/// ended, what it wrote and what was refused. `events` are its rows, oldest first; `live`: a majority holds it now.
std::string render_token_story(std::string_view resource, std::uint64_t token, const history_page& events, bool live);

}  // namespace fencegate::api
