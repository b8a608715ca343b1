// The colour scheme: light, dark, or that of the system; stored in this browser.

const NAME = 'fencegate.theme';
const NEXT = {auto: 'dark', dark: 'light', light: 'auto'};

export function startTheme(button) {
  const show = theme => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  let theme = localStorage.getItem(NAME);
  if (!(theme in NEXT)) theme = 'auto';
  show(theme);
  button.addEventListener('click', () => {
    theme = NEXT[theme];
    localStorage.setItem(NAME, theme);
    show(theme);
  });
}
