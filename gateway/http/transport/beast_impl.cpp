// Beast's compiled part, once for the whole program (BOOST_BEAST_SEPARATE_COMPILATION). Asio's stands in lockcore.
#include <boost/beast/src.hpp>
