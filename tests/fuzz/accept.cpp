// The headers Accept, Content-Type and Prefer.
#include "fuzz.hpp"

#include <gateway/api/tables/preferences.hpp>
#include <gateway/http/codec/accept.hpp>

#include <array>
#include <string>

namespace fencegate::fuzz {

void run_input(std::string_view input) {
    constexpr std::array<std::string_view, 3> offers{"application/json", "text/html", "text/event-stream"};
    const auto chosen = http::preferred_type(input, offers);
    require(!chosen || *chosen < offers.size(), "the choice is one of the offers");
    const std::string padded = " \t" + std::string(input) + "\t ";
    require(http::preferred_type(padded, offers) == chosen, "space around the header does not count");
    for (const std::string_view only : offers) {
        const auto one = http::preferred_type(input, {only});
        if (chosen && only == offers[*chosen]) require(one.has_value(), "the chosen type is acceptable by itself");
        if (one) require(chosen.has_value(), "with an acceptable type among the offers, one is chosen");
    }

    const std::string charset = http::find_foreign_charset(input);
    require(charset.size() <= input.size() * 2 + 2, "the names of charsets are those of the header");
    require(http::is_media_type(input, "application/json") ==
                    http::is_media_type(std::string(input) + ";a=b", "application/json") ||
                input.find('"') != std::string_view::npos,
            "a parameter does not change the media type");

    for (const auto& preference : api::split_preferences(input)) {
        require(preference.text.starts_with(preference.name), "a preference begins with its name");
        require(preference.text.size() <= input.size() + 1, "a preference is a part of the header");
    }
    http::request request;
    request.headers.emplace_back("prefer", std::string(input));
    const auto applied = api::parse_preferences(request).applied;
    request.headers.back().second = applied;
    require(api::parse_preferences(request).applied == applied, "the applied preferences are understood as they were");
}

}  // namespace fencegate::fuzz
