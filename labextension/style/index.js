import './view.css';
import './base.css';
import './choose.css';
