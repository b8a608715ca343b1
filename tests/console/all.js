// Runs all tests in one process, so that they share a stack and a browser.
import './serving.js';
import './signing_in.js';
import './panels.js';
import './pages.js';
import './guard.js';
import './timeline.js';
import './history.js';
import './revoking.js';
import './staying_live.js';
import './replacement.js';
