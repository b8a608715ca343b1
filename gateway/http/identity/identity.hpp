#pragma once

#include <gateway/http/identity/rights.hpp>

#include <string>

namespace fencegate::http {

/// A caller's name and what it may do.
struct identity {
    std::string principal;
    http::rights rights;
};

}  // namespace fencegate::http
