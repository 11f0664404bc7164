// Who is logged in, for every view that shows or hides what a role may do.

import { createContext, useContext } from "./ui.js";

const RANKS = { viewer: 0, operator: 1, admin: 2 };

export const SessionContext = createContext(null);

/** {user: {name, role}, version}, and `may(role)`: whether the user has at least that role. */
export function useSession() {
  const session = useContext(SessionContext);
  const rank = RANKS[session?.user?.role] ?? -1;
  return { ...session, may: (role) => rank >= RANKS[role] };
}
