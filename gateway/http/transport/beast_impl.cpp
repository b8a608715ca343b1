// Beast's compiled part, once for the whole program (BOOST_BEAST_SEPARATE_COMPILATION). lockcore compiles Asio's part.
#include <boost/beast/src.hpp>
